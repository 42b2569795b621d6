local id, age = ARGV[3], tonumber(ARGV[4])
local records, used = of(ARGV[2]) .. 'owned', of(ARGV[2]) .. 'owned_used'
local last = redis.call('ZSCORE', used, id)
if not last or tonumber(last) < now - age then return false end
redis.call('ZADD', used, exact(now), id)
redis.call('ZADD', 'claw:owners', exact(now), ARGV[2])
for _, name in ipairs({records, used, 'claw:owners'}) do redis.call('EXPIRE', name, age) end
local record = redis.call('HGET', records, id)
if record then note_owner(ARGV[2], 'owned', provider_of(record), id, age) end
return record
