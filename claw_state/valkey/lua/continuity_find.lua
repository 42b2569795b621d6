local a, limit, entries = of(ARGV[2]), tonumber(ARGV[3]), {}
for place = 4, #ARGV do
  for _, id in ipairs(redis.call('ZREVRANGE', a .. 'by:' .. ARGV[place], 0, limit - 1)) do
    local about = redis.call('HGET', a .. 'about', id)
    if about then entries[#entries + 1] = {id, about, redis.call('HGET', a .. 'messages', id)} end
  end
end
return entries
