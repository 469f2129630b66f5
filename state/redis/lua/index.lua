-- What all scripts share. A partition is one slot: its groups, each a hash, and their indexes.
--   g:GROUP  fields: m the lease, u the token of a write that replicas may not have yet, kKEY a value
--   x        groups by when they expire
--   l:OWNER  unpinned groups by when they were last used; p:OWNER the pinned ones
--   o        the names of owners
--   t        totals: v counts changes, n items, b and p bytes of unpinned and pinned groups, oOWNER of an owner's unpinned ones
local base = ARGV[1]
local totals = base .. 't'

local function load(group)
  local text = redis.call('HGET', base .. 'g:' .. group, 'm')
  if not text then return nil end
  local seen, expires, pinned, fence, bytes, items, owner = string.match(text, '^(%d+) (%d+) (%d) (%x+) (%d+) (%d+) (.*)$')
  return {seen = tonumber(seen), expires = tonumber(expires), pinned = pinned == '1', fence = fence,
    bytes = tonumber(bytes), items = tonumber(items), owner = owner}
end

local function save(group, m)
  redis.call('HSET', base .. 'g:' .. group, 'm', string.format('%.0f %.0f %d %s %.0f %.0f ', m.seen, m.expires,
    m.pinned and 1 or 0, m.fence, m.bytes, m.items) .. m.owner)
end

local function add(field, n)
  if n ~= 0 and redis.call('HINCRBY', totals, field, string.format('%.0f', n)) == 0 then
    redis.call('HDEL', totals, field)
  end
end

-- count adds a group to the totals, or with -1 takes it away.
local function count(m, sign)
  add('n', sign * m.items)
  if m.pinned then
    add('p', sign * m.bytes)
  else
    add('b', sign * m.bytes)
    add('o' .. m.owner, sign * m.bytes)
  end
end

local function ownerIndex(m) return base .. (m.pinned and 'p:' or 'l:') .. m.owner end

local function unindex(group, m)
  redis.call('ZREM', ownerIndex(m), group)
  if redis.call('EXISTS', base .. 'l:' .. m.owner, base .. 'p:' .. m.owner) == 0 then
    redis.call('ZREM', base .. 'o', m.owner)
  end
end

local function index(group, m)
  redis.call('ZADD', base .. 'x', string.format('%.0f', m.expires), group)
  redis.call('ZADD', ownerIndex(m), string.format('%.0f', m.seen), group)
  redis.call('ZADD', base .. 'o', 0, m.owner)
end

local function remove(group, m)
  redis.call('UNLINK', base .. 'g:' .. group)
  redis.call('ZREM', base .. 'x', group)
  unindex(group, m)
  count(m, -1)
end

-- keepFor lets a group, and the indexes for as long as there is one, go by themselves when nobody sweeps. The time has a margin of
-- an hour over the lease; half of it is used up before it is set again, because every change is synced and replicated.
local function keepFor(ms, keys)
  for _, key in ipairs(keys) do
    if redis.call('PTTL', key) < ms - 1800000 then redis.call('PEXPIRE', key, string.format('%.0f', ms)) end
  end
end
