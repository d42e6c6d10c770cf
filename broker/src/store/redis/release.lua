-- KEYS[1] group | ARGV attempt, fence
-- returns 1, also if it was released before; nil if another attempt has it or it is finished
local key = KEYS[1]
local found = redis.call('HMGET', key, 'attempt', 'fence')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or redis.call('PTTL', key) ~= -1 then return false end
redis.call('HDEL', key, 'owner')
return 1
