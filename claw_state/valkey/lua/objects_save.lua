local agent, age, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local records, used = of(agent) .. 'objects', of(agent) .. 'objects_used'
for at = 5, #ARGV, 2 do
  redis.call('HSET', records, ARGV[at], ARGV[at + 1])
  redis.call('ZADD', used, exact(now), ARGV[at])
end
local function drop(names)
  for _, old in ipairs(names) do
    redis.call('HDEL', records, old)
    redis.call('ZREM', used, old)
  end
end
drop(redis.call('ZRANGEBYSCORE', used, '-inf', '(' .. exact(now - age)))
local over = redis.call('ZCARD', used) - most
if over > 0 then drop(redis.call('ZRANGE', used, 0, over - 1)) end
redis.call('ZADD', 'claw:object_owners', exact(now), agent)
redis.call('ZREMRANGEBYSCORE', 'claw:object_owners', '-inf', exact(now - age))
for _, name in ipairs({records, used, 'claw:object_owners'}) do redis.call('EXPIRE', name, age) end
return 1
