-- KEYS[1] group | ARGV owner, fresh attempt, beat and fence of the silent owner (or '')
-- returns {1, all fields} if the caller owns it, {0, owner, beat, fence} if another owner does
local key, owner, fresh = KEYS[1], ARGV[1], ARGV[2]
local found = redis.call('HMGET', key, 'attempt', 'fence', 'owner', 'beat')
local attempt, fence, holder, beat = found[1], found[2], found[3], found[4]

if not (attempt and fence and beat) then
  -- DEL only an existing key: a script that has written once is never refused for memory later.
  if redis.call('EXISTS', key) == 1 then redis.call('DEL', key) end
  redis.call('HSET', key, 'attempt', fresh, 'fence', '1', 'owner', owner, 'beat', '1', 'n', '0')
  return {1, redis.call('HGETALL', key)}
end

local finished = redis.call('PTTL', key) ~= -1
if holder and not finished then
  if holder == owner then
    redis.call('HINCRBY', key, 'beat', 1)
    return {1, redis.call('HGETALL', key)}
  end
  if beat ~= ARGV[3] or fence ~= ARGV[4] then
    return {0, holder, beat, fence}
  end
end

-- Released, finished or silent: take it over.
local next_fence = string.format('%.0f', tonumber(fence) + 1)
local next_beat = string.format('%.0f', tonumber(beat) + 1)
redis.call('HSET', key, 'fence', next_fence, 'owner', owner, 'beat', next_beat)
if finished then redis.call('PERSIST', key) end
return {1, redis.call('HGETALL', key)}
