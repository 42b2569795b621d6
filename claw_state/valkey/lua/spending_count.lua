local max_requests, max_cost, soft = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local id, estimate, needed, lapse = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local max_ahead = tonumber(ARGV[12])
local reserved, under_way = 0, 0
if id ~= '' then
  local holds = redis.call('HGETALL', held_key)
  for place = 1, #holds, 2 do
    local its_estimate, amount, seen = read_hold(holds[place + 1])
    if amount < 0 then
      if math.abs(now - seen) >= seconds then redis.call('HDEL', held_key, holds[place]) end
    elseif math.abs(now - seen) >= lapse then
      hold(holds[place], its_estimate, -1)
      add(0, its_estimate, 1)
    elseif holds[place] ~= id then
      reserved, under_way = reserved + amount, under_way + 1
    end
  end
end
local all, requests, cost, unknown, current = redis.call('HGETALL', key), 0, 0, 0, {}
local is_taken_back = false
for place = 1, #all, 2 do
  if tonumber(all[place]) > now + max_ahead then -- of a clock that was set back
    redis.call('HDEL', key, all[place])
    add(parts(all[place + 1]))
    is_taken_back = true
  end
end
if is_taken_back then all = redis.call('HGETALL', key) end
for place = 1, #all, 2 do
  if tonumber(all[place]) <= now - seconds then
    redis.call('HDEL', key, all[place])
  else
    local more_requests, more_cost, more_unknown = parts(all[place + 1])
    requests, cost, unknown = requests + more_requests, cost + more_cost, unknown + more_unknown
    current[#current + 1] = all[place] .. ' ' .. all[place + 1]
  end
end
-- The rules of claw_state/spending.py: find_excess and amount_to_hold.
local rounding = 1e-9
local used = math.max(0, cost) + reserved
local is_full = max_cost and used > max_cost * rounding
  and (used >= max_cost or used + needed > max_cost * (1 + rounding))
local exceeded = (max_requests and requests >= max_requests) or is_full
if soft or not exceeded then
  add(1, 0, 0)
  if id ~= '' then
    local average = math.max(0, cost) / math.max(requests - under_way, 1)
    if estimate == 0 then estimate = average end
    local is_cost_known = average > 0 or unknown > 0
    hold(id, estimate, math.max(estimate, is_cost_known and average or max_cost or 0))
  end
end
return {exceeded and 1 or 0, exact(now), current, string.format('%.17g', reserved), string.format('%.17g', estimate)}
