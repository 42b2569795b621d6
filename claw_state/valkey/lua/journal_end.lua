local turn, owner, state, answer = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local t = 'claw:t:' .. turn
local known = redis.call('HMGET', t, 'owner', 'agent', 'request', 'answer')
if known[1] ~= owner or (known[4] or '') ~= '' then return 0 end
redis.call('HSET', t, 'state', state, 'answer', answer)
if answer ~= '' then
  for _, name in ipairs(redis.call('HKEYS', t)) do
    if string.find(name, '.', 1, true) then redis.call('HDEL', t, name) end -- a step: ROUND.PLACE
  end
end
seen(turn, known[2], known[3])
return 1
