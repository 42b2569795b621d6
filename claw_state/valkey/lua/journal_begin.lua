local turn, agent, owner = ARGV[3], ARGV[4], ARGV[5]
local request, earlier, said, attempt = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
if runs(agent, request, turn) then return 0 end
redis.call('HSET', 'claw:t:' .. turn, 'agent', agent, 'state', 'running', 'owner', owner,
  'request', request, 'earlier', earlier, 'said', said, 'attempt', attempt)
seen(turn, agent, request)
redis.call('ZREMRANGEBYSCORE', of(agent) .. 'turns', '-inf', exact(now - within))
redis.call('ZADD', 'claw:agents', 'NX', exact(now), agent)
if redis.call('TTL', 'claw:agents') < within then redis.call('EXPIRE', 'claw:agents', within) end
return 1
