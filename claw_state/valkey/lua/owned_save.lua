-- Saves what an agent owns: ids and records, in the hash ``kept`` with its times of use, and the agent among ``owners``.
-- Those that are another agent's, by their name or by the other one that they may have, are left out, and returned.
local agent, kept, owners, age, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local records, used, may_share = of(agent) .. kept, of(agent) .. kept .. '_used', ARGV[7] == '1'
local refused = {}
for at = 8, #ARGV, 4 do
  local name, other, provider, record = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local is_taken = is_anothers(agent, kept, provider, name, age) or is_anothers(agent, kept, provider, other, age)
  if is_taken and not may_share then
    refused[#refused + 1] = name
  else
    disown(agent, kept, name) -- it may have been at another provider
    redis.call('HSET', records, name, record)
    redis.call('ZADD', used, exact(now), name)
    note_owner(agent, kept, provider, name, age)
  end
end
local function drop(names)
  for _, old in ipairs(names) do
    disown(agent, kept, old)
    redis.call('HDEL', records, old)
    redis.call('ZREM', used, old)
  end
end
drop(redis.call('ZRANGEBYSCORE', used, '-inf', '(' .. exact(now - age)))
local over = redis.call('ZCARD', used) - most
if over > 0 then drop(redis.call('ZRANGE', used, 0, over - 1)) end
redis.call('ZADD', owners, exact(now), agent)
redis.call('ZREMRANGEBYSCORE', owners, '-inf', exact(now - age))
for _, name in ipairs({records, used, owners}) do redis.call('EXPIRE', name, age) end
return {1, refused}
