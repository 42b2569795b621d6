local a = of(ARGV[2])
local ids = redis.call('ZRANGE', a .. ARGV[3], 0, tonumber(ARGV[4]) - 1)
for _, id in ipairs(ids) do drop(a, id) end
if redis.call('ZCARD', a .. 'used') == 0 then redis.call('DEL', a .. 'bytes') end
return #ids
