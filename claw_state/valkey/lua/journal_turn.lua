local known = redis.call('HMGET', 'claw:t:' .. ARGV[2], 'state', 'owner', 'seen')
if not known[1] then return nil end
return {known[1], known[2], exact(now - tonumber(known[3]))}
