-- KEYS[1] group | ARGV attempt, fence, milliseconds to keep it
-- returns 1; nil if another owner or attempt has it
local key = KEYS[1]
local found = redis.call('HMGET', key, 'attempt', 'fence', 'owner')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or not found[3] then return false end
if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, ARGV[3]) end
return 1
