-- KEYS[1] group | ARGV attempt, fence, then key and payload of each record
-- returns for each 0 new, 1 duplicate, 2 conflict; nil if the lease does not hold
-- A record is the field 'r:' key with the value order ':' payload.
local key = KEYS[1]
if not held(key, ARGV[1], ARGV[2]) then return false end

local order = tonumber(redis.call('HGET', key, 'n'))
local answer, new, writes = {}, {}, {'n', ''}
for i = 3, #ARGV, 2 do
  local field, payload = 'r:' .. ARGV[i], ARGV[i + 1]
  local first = new[field]
  if not first then
    local stored = redis.call('HGET', key, field)
    first = stored and string.sub(stored, string.find(stored, ':', 1, true) + 1)
  end
  if not first then
    new[field] = payload
    writes[#writes + 1] = field
    writes[#writes + 1] = string.format('%.0f:', order) .. payload
    order = order + 1
    answer[#answer + 1] = 0
  else
    answer[#answer + 1] = first == payload and 1 or 2
  end
end

writes[2] = string.format('%.0f', order)
if #writes > 2 then
  -- Lua's stack bounds the arguments of one call. Only the first write of a script can be refused
  -- for memory.
  for from = 1, #writes, 2000 do
    redis.call('HSET', key, unpack(writes, from, math.min(from + 1999, #writes)))
  end
end
return answer
