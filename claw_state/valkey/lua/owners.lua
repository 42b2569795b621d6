-- Who owns an id of a provider's: the agent that ``claw:o:KEPT:PROVIDER NAME`` names, as long as it has an entry of it.
-- So an entry that has expired or was dropped frees its id, and an agent without one takes nothing from anybody.
local function provider_of(record) -- the third member of an OwnedObject and a ProviderObject, behind the array's length
  local first = string.byte(record) or 0
  local length = first == 0xdc and 3 or first == 0xdd and 5 or 1
  local is_sound, _, _, _, provider = pcall(cmsgpack.unpack_limit, record, 3, length)
  return is_sound and type(provider) == 'string' and provider or ''
end
local function owner_key(kept, provider, name) return 'claw:o:' .. kept .. ':' .. provider .. ' ' .. name end
local function owns(agent, kept, provider, name, age)
  local last = redis.call('ZSCORE', of(agent) .. kept .. '_used', name)
  if not last or tonumber(last) < now - age then return false end
  local record = redis.call('HGET', of(agent) .. kept, name)
  return record and provider_of(record) == provider
end
local function other_owner(agent, kept, provider, name, age)
  local owner = redis.call('GET', owner_key(kept, provider, name))
  return owner and owner ~= agent and owns(owner, kept, provider, name, age)
end
local function is_anothers(agent, kept, provider, name, age)
  return other_owner(agent, kept, provider, name, age) and not owns(agent, kept, provider, name, age)
end
local function note_owner(agent, kept, provider, name, age) -- of an entry that is there: also of one of an earlier version
  if not other_owner(agent, kept, provider, name, age) then
    redis.pcall('SET', owner_key(kept, provider, name), agent, 'EX', age) -- a server that can only be read tells whose an id is
  end
end
local function disown(agent, kept, name) -- before the entry is deleted
  local record = redis.call('HGET', of(agent) .. kept, name)
  local key = record and owner_key(kept, provider_of(record), name)
  if key and redis.call('GET', key) == agent then redis.call('DEL', key) end
end
