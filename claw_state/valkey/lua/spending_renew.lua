local held_key, id, estimate = of(ARGV[2]) .. 'held', ARGV[3], tonumber(ARGV[4])
local text = redis.call('HGET', held_key, id)
if not text then return 0 end
local before, amount = string.match(text, '^(%S+) (%S+) ')
if tonumber(amount) < 0 then return 0 end
if tonumber(before) ~= estimate then amount = estimate end
redis.call('HSET', held_key, id, string.format('%.17g %.17g %.6f', estimate, tonumber(amount), now))
if redis.call('TTL', held_key) < 120 then redis.call('EXPIRE', held_key, 120) end
return 1
