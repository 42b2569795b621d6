local agent, within, request, earlier, words = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local function read(turn)
  local known = redis.call('HMGET', 'claw:t:' .. turn, 'state', 'owner', 'seen', 'attempt', 'request', 'said', 'earlier')
  if not known[1] or tonumber(known[3]) <= now - within then return nil end
  return known
end
local function row(turn, known)
  return {turn, known[1], known[2], known[3], known[4], exact(now - tonumber(known[3])), known[6]}
end
local turn = redis.call('GET', of(agent) .. 'asked:' .. request)
local known = turn and read(turn)
if known and known[5] == request then return {'same', row(turn, known)} end
if words == '' then return nil end
local alike = {'altered'}
for _, other in ipairs(redis.call('ZREVRANGE', of(agent) .. 'earlier:' .. earlier, 0, tonumber(ARGV[7]) - 1)) do
  known = read(other)
  if known and known[1] ~= 'done' and known[7] == earlier and known[6] ~= '' then
    alike[#alike + 1] = row(other, known)
  end
end
return alike
