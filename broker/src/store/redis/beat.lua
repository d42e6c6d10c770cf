-- KEYS groups | ARGV attempt, fence of each
-- returns 1 or 0 for each
local stands = {}
for i, key in ipairs(KEYS) do
  stands[i] = held(key, ARGV[2 * i - 1], ARGV[2 * i]) and 1 or 0
end
for i, key in ipairs(KEYS) do
  if stands[i] == 1 then redis.call('HINCRBY', key, 'beat', 1) end
end
return stands
