-- ARGV: base, mode, now, spare, bytes to free (-1 for no limit), prefix of owners, owner to keep, then groups.
-- Modes: drop, expired, evict, owner. Returns how many groups, their bytes, those of unpinned ones, how many groups were gone
-- already, and the totals.
local mode, now, spare, budget = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local prefix, keep = ARGV[6], ARGV[7]
local groups, bytes, freed, lost = 0, 0, 0, 0
for i = 8, #ARGV do
  if budget >= 0 and freed >= budget then break end
  local m = load(ARGV[i])
  local isMeant = m and (mode == 'drop'
    or mode == 'expired' and m.expires <= now
    or mode == 'evict' and not m.pinned and m.owner == prefix and (m.seen <= spare or m.expires <= now)
    or mode == 'owner' and string.sub(m.owner, 1, #prefix) == prefix and m.owner ~= keep)
  if not m then
    redis.call('ZREM', base .. 'x', ARGV[i])
    lost = lost + 1
  elseif isMeant then
    remove(ARGV[i], m)
    groups, bytes = groups + 1, bytes + m.bytes
    if not m.pinned then freed = freed + m.bytes end
  end
end
local version = redis.call('HINCRBY', totals, 'v', 1)
local t = redis.call('HMGET', totals, 'n', 'b', 'p')
return {groups, string.format('%.0f', bytes), string.format('%.0f', freed), lost, version, t[1] or '0', t[2] or '0', t[3] or '0'}
