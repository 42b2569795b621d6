local cost, unknown, id = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local text = id ~= '' and redis.call('HGET', held_key, id)
if text then
  local estimate, amount = read_hold(text)
  if amount < 0 then cost = cost - estimate end  -- it has lapsed, and was charged: what is added corrects the estimate
  redis.call('HDEL', held_key, id)
end
if id == '' or cost ~= 0 or unknown ~= 0 then add(0, cost, unknown) end
return 1
