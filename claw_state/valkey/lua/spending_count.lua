local max_requests, max_cost, soft = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local all, requests, cost, current = redis.call('HGETALL', key), 0, 0, {}
for place = 1, #all, 2 do
  if tonumber(all[place]) <= now - seconds then
    redis.call('HDEL', key, all[place])
  else
    local more_requests, more_cost = parts(all[place + 1])
    requests, cost = requests + more_requests, cost + more_cost
    current[#current + 1] = all[place] .. ' ' .. all[place + 1]
  end
end
local exceeded = (max_requests and requests >= max_requests) or (max_cost and cost >= max_cost)
if soft or not exceeded then add(1, 0, 0) end
return {exceeded and 1 or 0, exact(now), current}
