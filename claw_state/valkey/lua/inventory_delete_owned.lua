local a = of(ARGV[2])
local ids = redis.call('ZPOPMIN', a .. 'owned_used', tonumber(ARGV[3]))
for place = 1, #ids, 2 do
  disown(ARGV[2], 'owned', ids[place])
  redis.call('HDEL', a .. 'owned', ids[place])
end
return #ids / 2
