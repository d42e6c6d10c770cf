-- KEYS[1] group | ARGV attempt, fence | answers 1, also if it is gone already; nil if it is another's
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then return 1 end
if not held(key, ARGV[1], ARGV[2]) then return false end
redis.call('DEL', key)
return 1
