-- KEYS[1] group | ARGV attempt, fence
-- returns 1, also if the group is missing; nil if another owner or attempt has it
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then return 1 end
if not held(key, ARGV[1], ARGV[2]) then return false end
redis.call('DEL', key)
return 1
