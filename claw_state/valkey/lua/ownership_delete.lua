disown(ARGV[2], 'owned', ARGV[3])
redis.call('HDEL', of(ARGV[2]) .. 'owned', ARGV[3])
return redis.call('ZREM', of(ARGV[2]) .. 'owned_used', ARGV[3])
