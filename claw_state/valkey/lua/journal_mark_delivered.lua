local known = redis.call('HMGET', 'claw:t:' .. ARGV[3], 'state', 'agent', 'request', 'earlier')
if known[1] ~= 'answered' then return 0 end
redis.call('HSET', 'claw:t:' .. ARGV[3], 'state', 'done')
seen(ARGV[3], known[2], known[3])
redis.call('ZREM', of(known[2]) .. 'earlier:' .. known[4], ARGV[3]) -- it takes no room from those that may go on
return 1
