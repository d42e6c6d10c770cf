-- KEYS[1] group | ARGV attempt, fence, outcome
-- returns {} if this outcome was written, {outcome} if one was stored; nil if the lease does not
-- hold
local key = KEYS[1]
if not held(key, ARGV[1], ARGV[2]) then return false end
local stands = redis.call('HGET', key, 'decided')
if stands then return {stands} end
redis.call('HSET', key, 'decided', ARGV[3])
return {}
