-- Which client an address is. Everything that bounds clients by their address takes this answer.
local callers = {}

-- Buckets that callers are counted in, so that the memory of the counts has a bound. A secret of this start of nginx
-- decides the bucket: no client can pick addresses of its network that fall into another client's.
local BUCKETS = 1024
local MAPPED = ("\0"):rep(10) .. "\255\255"
local LOOPBACK6 = ("\0"):rep(15) .. "\1"
local LOCAL = "local"
local secret = ""

-- In the process that starts the others, which get the same secret.
function callers.init()
  local file = assert(io.open("/dev/urandom", "rb"))
  secret = assert(file:read(16))
  file:close()
end

-- The client of an address in network order, of 4 or 16 bytes. The host itself is one client by all addresses of
-- 127.0.0.0/8 and by ::1 (any local user has all of them, ip(7)); a network of IPv6 is one by its /64, the smallest that
-- an end site has (RFC 6177); an IPv4 address within IPv6 (RFC 4291, 2.5.5.2) is that IPv4 address.
function callers.client(address)
  if #address == 16 then
    if address == LOOPBACK6 then return LOCAL end
    if address:sub(1, 12) ~= MAPPED then return address:sub(1, 8) end
    address = address:sub(13)
  end
  if #address == 4 and address:byte() == 127 then return LOCAL end
  return address
end

-- The number of a caller: of a key, or without keys of a client's address.
function callers.bucket(key, address)
  local hash = ngx.md5_bin(secret .. (key and key ~= "" and "key " .. key or "address " .. callers.client(address)))
  return (hash:byte(1) * 256 + hash:byte(2)) % BUCKETS
end

return callers
