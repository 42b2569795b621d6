local key, seconds, width = of(ARGV[2]) .. 'spent', tonumber(ARGV[3]), tonumber(ARGV[4])
local held_key = of(ARGV[2]) .. 'held'
local function parts(bucket)
  local requests, cost, unknown = string.match(bucket or '0 0 0', '^(%S+) (%S+) (%S+)$')
  return tonumber(requests), tonumber(cost), tonumber(unknown)
end
local function add(more_requests, more_cost, more_unknown)
  local ends = exact((math.floor(now / width) + 1) * width)
  local requests, cost, unknown = parts(redis.call('HGET', key, ends))
  redis.call('HSET', key, ends, string.format('%d %.17g %d', requests + more_requests, cost + more_cost,
    unknown + more_unknown))
  redis.call('EXPIRE', key, math.ceil(seconds + width))
end
local function hold(id, estimate, amount)
  redis.call('HSET', held_key, id, string.format('%.17g %.17g %.6f', estimate, amount, now))
  -- A request may take longer than a short window; its process renews it every quarter of a minute.
  redis.call('EXPIRE', held_key, math.max(math.ceil(seconds + width), 120))
end
local function read_hold(text)
  local estimate, amount, seen = string.match(text, '^(%S+) (%S+) (%S+)$')
  return tonumber(estimate), tonumber(amount), tonumber(seen)
end
