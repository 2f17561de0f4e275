# What idem.so is made of, read from the linker's map: awk -f size.awk MAP
#
# Bytes of sections that are loaded (code, constants, unwind tables), by the object that they come
# from: libcrypto's archive, idem's bundled SQL, the rest of idem, and what belongs to no single
# object (relocations, the linker's tables).

/^Linker script and memory map/ { inside = 1 }
!inside { if (/^\// && /libcrypto/) members[$1] = 1; next }

# A section's name that is too long stands on a line of its own.
/^ \.[A-Za-z_.0-9-]+$/ { name = $1; getline; $0 = " " name $0 }
/^ \.(debug|comment|note|group|stab)/ { next }
/^ \.[A-Za-z_.0-9-]+ +0x[0-9a-f]+ +0x[0-9a-f]+ / {
  if ($2 == "0x0000000000000000") next   # thrown away
  n = strtonum($3)
  if ($1 ~ /^\.(eh_frame_hdr|got|plt|rela|dyn)/) rest += n   # made by the linker for all
  else if ($4 ~ /libcrypto\.a/) crypto += n
  else if ($4 ~ /sql_text/) sql += n
  else if ($4 ~ /^build\//) ours += n
  else rest += n
}
END {
  for (m in members) count++
  printf "libcrypto, %d of its objects\t%8d\n", count, crypto
  printf "idem's bundled SQL\t%8d\nidem's own code\t%8d\nlinker, C start-up\t%8d\n", sql, ours, rest
}
