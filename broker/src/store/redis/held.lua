-- Returns true if a lease holds a group: the same attempt and fence, not released, and not finished
-- (only finished groups have a TTL).
local function held(key, attempt, fence)
  local found = redis.call('HMGET', key, 'attempt', 'fence', 'owner')
  return found[1] == attempt and found[2] == fence and found[3] and redis.call('PTTL', key) == -1
end
