-- Lists under which an entry is found: of its key, which is the first line of what is known about it, and of its names, which are
-- the lines from the fourth on.
local function found_by(a, about)
  local lists, line = {}, 0
  for key in string.gmatch(about .. '\n', '([^\n]*)\n') do
    line = line + 1
    if line == 1 or line > 3 then lists[#lists + 1] = a .. 'by:' .. key end
  end
  return lists
end
local function drop(a, id)
  local about = redis.call('HGET', a .. 'about', id)
  redis.call('INCRBY', a .. 'bytes', 0 - redis.call('HSTRLEN', a .. 'messages', id)) -- there is a -0, which is no integer
  redis.call('HDEL', a .. 'about', id)
  redis.call('HDEL', a .. 'messages', id)
  redis.call('ZREM', a .. 'used', id)
  redis.call('ZREM', a .. 'whole', id)
  for _, by in ipairs(found_by(a, about)) do redis.call('ZREM', by, id) end
end
