-- ARGV: base, group, seen, expires, milliseconds to keep, owner, pinned, fence, token, whether the fence counts,
-- condition (0 none, 1 absent, 2 equal), its key, its value, how many conditions of items follow, these in the same form, then
-- keys and values. Returns 0 if the condition does not hold or the fence is too small, 2 if a condition of an item does not.
local group, now = ARGV[2], tonumber(ARGV[3])
local key = base .. 'g:' .. group
local m = load(group)
local isLive = m and m.expires > now
local function holds(kind, name, want)
  local value = kind ~= '0' and isLive and redis.call('HGET', key, 'k' .. name)
  return kind == '0' or kind == '1' and not value or kind == '2' and value == want
end
if not holds(ARGV[11], ARGV[12], ARGV[13]) then return {0} end
if ARGV[10] == '1' and isLive and m.fence > ARGV[8] then return {0} end
local first = 15 + 3 * tonumber(ARGV[14])
for i = 15, first - 1, 3 do
  if not holds(ARGV[i], ARGV[i + 1], ARGV[i + 2]) then return {2} end
end
local version = redis.call('HINCRBY', totals, 'v', 1)
local oldOwner = m and m.owner or ARGV[6]
if m and not isLive then
  remove(group, m)
  m = nil
end
if m then
  count(m, -1)
  if m.owner ~= ARGV[6] or not m.pinned and ARGV[7] == '1' then unindex(group, m) end
else
  m = {seen = 0, expires = 0, pinned = false, fence = ARGV[8], bytes = 0, items = 0}
end
m.seen, m.expires = math.max(m.seen, now), math.max(m.expires, tonumber(ARGV[4]))
m.pinned, m.owner = m.pinned or ARGV[7] == '1', ARGV[6]
if ARGV[8] > m.fence then m.fence = ARGV[8] end
for i = first, #ARGV, 2 do
  local field = 'k' .. ARGV[i]
  local old = redis.call('HSTRLEN', key, field)
  if redis.call('HSET', key, field, ARGV[i + 1]) == 1 then
    m.items, m.bytes = m.items + 1, m.bytes + #ARGV[i] + #group
  end
  m.bytes = m.bytes + #ARGV[i + 1] - old
end
if ARGV[9] ~= '' then redis.call('HSET', key, 'u', ARGV[9]) end
save(group, m)
index(group, m)
count(m, 1)
keepFor(tonumber(ARGV[5]), {key, base .. 'x', ownerIndex(m), base .. 'o', totals})
local t = redis.call('HMGET', totals, 'n', 'b', 'p', 'o' .. m.owner)
return {1, version, t[1] or '0', t[2] or '0', t[3] or '0', t[4] or '0', oldOwner == m.owner and 1 or 0}
