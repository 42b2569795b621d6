local function drop(a, id)
  local anchor = a .. 'by:' .. string.match(redis.call('HGET', a .. 'about', id), '^[^\n]*')
  redis.call('INCRBY', a .. 'bytes', 0 - redis.call('HSTRLEN', a .. 'messages', id)) -- there is a -0, which is no integer
  redis.call('HDEL', a .. 'about', id)
  redis.call('HDEL', a .. 'messages', id)
  redis.call('ZREM', a .. 'used', id)
  redis.call('ZREM', a .. 'whole', id)
  redis.call('ZREM', anchor, id)
end
