local key, seconds, width = of(ARGV[2]) .. 'spent', tonumber(ARGV[3]), tonumber(ARGV[4])
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
