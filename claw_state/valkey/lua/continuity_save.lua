local agent, about, messages = ARGV[2], ARGV[3], ARGV[4]
local age, max_turns, max_bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local max_marks, evicted = tonumber(ARGV[8]), ARGV[9]
local a = of(agent)
local id = redis.call('INCR', 'claw:last')
redis.call('HSET', a .. 'about', id, about)
redis.call('HSET', a .. 'messages', id, messages)
for _, by in ipairs(found_by(a, about)) do
  redis.call('ZADD', by, id, id)
  redis.call('EXPIRE', by, age)
end
redis.call('ZADD', a .. 'used', exact(now), id)
redis.call('INCRBY', a .. 'bytes', #messages)
if #messages > 0 then redis.call('ZADD', a .. 'whole', exact(now), id) end
local function evict(id)
  redis.call('INCRBY', a .. 'bytes', #evicted - redis.call('HSTRLEN', a .. 'messages', id))
  redis.call('HSET', a .. 'messages', id, evicted)
  redis.call('ZREM', a .. 'whole', id)
end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', a .. 'used', '-inf', '(' .. exact(now - age))) do drop(a, old) end
local over = redis.call('ZCARD', a .. 'whole') - max_turns
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', a .. 'whole', 0, over - 1)) do evict(old) end
end
while tonumber(redis.call('GET', a .. 'bytes')) > max_bytes and redis.call('ZCARD', a .. 'whole') > 0 do
  evict(redis.call('ZRANGE', a .. 'whole', 0, 0)[1])
end
over = redis.call('ZCARD', a .. 'used') - redis.call('ZCARD', a .. 'whole') - max_marks
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', a .. 'used', 0, max_turns + over)) do
    if over > 0 and not redis.call('ZSCORE', a .. 'whole', old) then
      drop(a, old)
      over = over - 1
    end
  end
end
for _, name in ipairs({a .. 'about', a .. 'messages', a .. 'used', a .. 'whole', a .. 'bytes', 'claw:last'}) do
  redis.call('EXPIRE', name, age)
end
redis.call('ZADD', 'claw:agents', exact(now), agent)
redis.call('EXPIRE', 'claw:agents', age)
redis.call('ZREMRANGEBYSCORE', 'claw:agents', '-inf', exact(now - age))
return id
