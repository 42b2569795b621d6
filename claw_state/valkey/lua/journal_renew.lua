local ours = 0
for place = 4, #ARGV do
  local known = redis.call('HMGET', 'claw:t:' .. ARGV[place], 'state', 'owner', 'agent', 'request')
  if (known[1] == 'running' or known[1] == 'abandoned') and known[2] == ARGV[3] then
    seen(ARGV[place], known[3], known[4])
    ours = ours + 1
  end
end
return ours
