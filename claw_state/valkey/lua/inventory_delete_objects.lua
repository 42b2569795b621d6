local a = of(ARGV[2])
local names = redis.call('ZPOPMIN', a .. 'objects_used', tonumber(ARGV[3]))
for place = 1, #names, 2 do
  disown(ARGV[2], 'objects', names[place])
  redis.call('HDEL', a .. 'objects', names[place])
end
return #names / 2
