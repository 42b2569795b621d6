local agent, age, mark = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local records, used = of(agent) .. 'objects', of(agent) .. 'objects_used'
local found, is_old = {}, false
for at = 5, #ARGV do
  local last = redis.call('ZSCORE', used, ARGV[at])
  if last and tonumber(last) >= now - age then
    found[#found + 1] = redis.call('HGET', records, ARGV[at])
    if tonumber(last) < now - mark then
      is_old = true
      redis.pcall('ZADD', used, exact(now), ARGV[at]) -- a server that can only be read tells whose an id is
      note_owner(agent, 'objects', provider_of(found[#found] or ''), ARGV[at], age)
    end
  end
end
if is_old then
  redis.pcall('ZADD', 'claw:object_owners', exact(now), agent)
  for _, name in ipairs({records, used, 'claw:object_owners'}) do redis.pcall('EXPIRE', name, age) end
end
return found
