-- ARGV: base, group, seen, expires, milliseconds to keep, token.
local group, now = ARGV[2], tonumber(ARGV[3])
local m = load(group)
if not m or m.expires <= now then return {0} end
m.seen, m.expires = math.max(m.seen, now), math.max(m.expires, tonumber(ARGV[4]))
if ARGV[6] ~= '' then redis.call('HSET', base .. 'g:' .. group, 'u', ARGV[6]) end
save(group, m)
index(group, m)
keepFor(tonumber(ARGV[5]), {base .. 'g:' .. group, base .. 'x', ownerIndex(m), base .. 'o', totals})
return {1}
