local prefix, age = ARGV[3], tonumber(ARGV[4])
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', of(ARGV[2]) .. 'objects_used', exact(now - age), '+inf')) do
  if string.sub(name, 1, #prefix) == prefix then found[#found + 1] = redis.call('HGET', of(ARGV[2]) .. 'objects', name) end
end
return found
