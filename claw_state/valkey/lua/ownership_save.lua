local agent, id, record, age, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local records, used = of(agent) .. 'owned', of(agent) .. 'owned_used'
redis.call('HSET', records, id, record)
redis.call('ZADD', used, exact(now), id)
local function drop(ids)
  for _, old in ipairs(ids) do
    redis.call('HDEL', records, old)
    redis.call('ZREM', used, old)
  end
end
drop(redis.call('ZRANGEBYSCORE', used, '-inf', '(' .. exact(now - age)))
local over = redis.call('ZCARD', used) - most
if over > 0 then drop(redis.call('ZRANGE', used, 0, over - 1)) end
redis.call('ZADD', 'claw:owners', exact(now), agent)
redis.call('ZREMRANGEBYSCORE', 'claw:owners', '-inf', exact(now - age))
for _, name in ipairs({records, used, 'claw:owners'}) do redis.call('EXPIRE', name, age) end
return 1
