-- Saves what an agent owns: ids and records, in the hash ``kept`` with its times of use, and the agent among ``owners``.
local agent, kept, owners, age, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local records, used = of(agent) .. kept, of(agent) .. kept .. '_used'
for at = 7, #ARGV, 2 do
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
redis.call('ZADD', owners, exact(now), agent)
redis.call('ZREMRANGEBYSCORE', owners, '-inf', exact(now - age))
for _, name in ipairs({records, used, owners}) do redis.call('EXPIRE', name, age) end
return 1
