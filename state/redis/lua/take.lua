-- Takes from several rates (state.Rate), all or none. KEYS are the rates. ARGV[1] is the time in microseconds, empty for
-- the server's; then for each rate: calls, every, burst, its part, cost, its part, spent, its part, the sign of spent,
-- extra. Times are whole microseconds; parts are in units of 1/calls microseconds. A rate is stored as the time at which
-- it will be full. All numbers are whole and below 2^53, so that nothing is rounded.
-- Returns 1 or 0, the index of the rate that refused, the microseconds until it would not, and what was taken of extra.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function plus(a, ap, b, bp, calls)
  if ap + bp >= calls then
    return a + b + 1, ap + bp - calls
  end
  return a + b, ap + bp
end

local function minus(a, ap, b, bp, calls)
  if ap < bp then
    return a - b - 1, ap - bp + calls
  end
  return a - b, ap - bp
end

local function after(a, ap, b, bp)
  return a > b or a == b and ap > bp
end

-- The time in which n calls come.
local function refill(n, calls, every)
  local rest = every % calls
  local parts = n * rest
  local part = parts % calls
  return n * ((every - rest) / calls) + (parts - part) / calls, part
end

local spent, next, extras = {}, {}, {}
local refused, retry = -1, 0
for i = 1, #KEYS do
  local arg = {}
  for j = 1, 10 do
    arg[j] = tonumber(ARGV[1 + (i - 1) * 10 + j])
  end
  local calls, every = arg[1], arg[2]
  local latest, latestPart = now + arg[3], arg[4]
  local full, part = now, 0
  local stored = redis.call('GET', KEYS[i])
  if stored then
    local f, p = string.match(stored, '^(%d+) (%d+)$')
    f, p = tonumber(f), tonumber(p)
    if after(f, p, now, 0) then
      full, part = f, p
    end
  end
  if arg[9] > 0 then
    full, part = plus(full, part, arg[7], arg[8], calls)
  elseif arg[9] < 0 then
    full, part = minus(full, part, arg[7], arg[8], calls)
    if after(now, 0, full, part) then
      full, part = now, 0
    end
  end
  if after(full, part, latest, latestPart) then
    full, part = latest, latestPart
  end
  if arg[9] ~= 0 then
    spent[i] = {full, part}
  end
  full, part = plus(full, part, arg[5], arg[6], calls)
  extras[i] = 0
  if after(full, part, latest, latestPart) then
    local wait, waitPart = minus(full, part, latest, latestPart, calls)
    if waitPart > 0 then
      wait = wait + 1
    end
    if wait > retry then
      refused, retry = i - 1, wait
    end
  elseif arg[10] > 0 then
    local room, roomPart = minus(latest, latestPart, full, part, calls)
    -- The division may be off by one.
    local n = math.min(arg[10], math.floor((room * calls + roomPart) / every))
    local t, p = refill(n, calls, every)
    if after(t, p, room, roomPart) then
      n = n - 1
    elseif n < arg[10] then
      t, p = refill(n + 1, calls, every)
      if not after(t, p, room, roomPart) then
        n = n + 1
      end
    end
    t, p = refill(n, calls, every)
    full, part = plus(full, part, t, p, calls)
    extras[i] = n
  end
  next[i] = {full, part}
end

for i = 1, #KEYS do
  local to = next[i]
  if refused >= 0 then
    to = spent[i]
  end
  if to then
    -- A minute longer than needed: after a failover, the clock of another server counts.
    local lifetime = math.ceil((to[1] - now) / 1000) + 60000
    redis.call('SET', KEYS[i], string.format('%.0f %.0f', to[1], to[2]), 'PX', string.format('%.0f', lifetime))
  end
end
if refused >= 0 then
  return {0, refused, retry}
end
return {1, 0, 0, unpack(extras)}
