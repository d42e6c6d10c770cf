-- Whether a lease holds a group: the same attempt and fence, not released, not finished (only finished ones have a TTL).
local function held(key, attempt, fence)
  local found = redis.call('HMGET', key, 'attempt', 'fence', 'owner')
  return found[1] == attempt and found[2] == fence and found[3] and redis.call('PTTL', key) == -1
end
