local cost, unknown, id, charged = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
-- One that has lapsed was charged already: what is added then corrects its estimate.
if id ~= '' and redis.call('HDEL', held_key, id) == 0 then cost = cost - charged end
if id == '' or cost ~= 0 or unknown ~= 0 then add(0, cost, unknown) end
return 1
