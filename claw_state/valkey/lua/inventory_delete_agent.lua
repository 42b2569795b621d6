local a = of(ARGV[2])
if redis.call('EXISTS', a .. 'used', a .. 'turns') == 0 then redis.call('ZREM', 'claw:agents', ARGV[2]) end
if redis.call('EXISTS', a .. 'owned') == 0 then redis.call('ZREM', 'claw:owners', ARGV[2]) end
if redis.call('EXISTS', a .. 'objects') == 0 then redis.call('ZREM', 'claw:object_owners', ARGV[2]) end
return 1
