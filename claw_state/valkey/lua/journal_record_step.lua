local t = 'claw:t:' .. ARGV[2]
if redis.call('HGET', t, 'owner') ~= ARGV[3] then return 0 end
redis.call('HSET', t, ARGV[4], ARGV[5])
return 1
