local a, age = of(ARGV[2]), ARGV[3]
for place = 4, #ARGV do
  redis.call('ZADD', a .. 'used', 'XX', exact(now), ARGV[place])
  redis.call('ZADD', a .. 'whole', 'XX', exact(now), ARGV[place])
  local about = redis.call('HGET', a .. 'about', ARGV[place])
  for _, by in ipairs(about and found_by(a, about) or {}) do redis.call('EXPIRE', by, age) end
end
for _, name in ipairs({'about', 'messages', 'used', 'whole', 'bytes'}) do redis.call('EXPIRE', a .. name, age) end
redis.call('EXPIRE', 'claw:last', age) -- never before what it has numbered
return 1
