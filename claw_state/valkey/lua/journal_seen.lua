local within = tonumber(ARGV[2])
local function seen(turn, agent, request)
  redis.call('HSET', 'claw:t:' .. turn, 'seen', exact(now))
  redis.call('EXPIRE', 'claw:t:' .. turn, within)
  redis.call('SET', of(agent) .. 'asked:' .. request, turn, 'EX', within)
  redis.call('ZADD', of(agent) .. 'turns', exact(now), turn)
  redis.call('EXPIRE', of(agent) .. 'turns', within)
  local earlier = of(agent) .. 'earlier:' .. redis.call('HGET', 'claw:t:' .. turn, 'earlier')
  redis.call('ZADD', earlier, exact(now), turn)
  redis.call('ZREMRANGEBYSCORE', earlier, '-inf', exact(now - within))
  redis.call('EXPIRE', earlier, within)
end
local function runs(agent, request, but)
  local turn = redis.call('GET', of(agent) .. 'asked:' .. request)
  if not turn or turn == but then return false end
  local known = redis.call('HMGET', 'claw:t:' .. turn, 'state', 'request', 'seen')
  return known[1] == 'running' and known[2] == request and tonumber(known[3]) > now - within
end
