# plots.gp: the four plots from the CSV files of the folder it runs in, as PNG and SVG.
#
# A plot whose file is not there is left out.

set datafile separator ","
set key left top
set grid
there(file) = int(system("test -s ".file." && echo 1 || echo 0"))
rows(file, condition) = sprintf("< awk -F, '%s' %s", condition, file)

do for [form in "png svg"] {
  if (form eq "png") { set terminal pngcairo size 1000,600 noenhanced font "sans,11" }
  else { set terminal svg size 1000,600 noenhanced font "sans,13" background "white" }

  # Throughput of one client. A row for each peer: what it cannot do is missing.
  if (there("peers.csv")) {
    set output "throughput.".form
    set title "Operations per second, one client, 400-byte answer (logarithmic)"
    set style data histograms
    set style histogram clustered gap 1
    set style fill solid 0.8
    set logscale y
    set xtics rotate by -25 scale 0
    set ylabel "per second"
    set yrange [100:*]
    set datafile missing "-"
    set key outside top center horizontal
    wide = "< awk -F, '$4==1 && $1!~/crowd|contender/ ".\
           "{ if (!seen[$1]++) name[++n]=$1; v[$1,$2,$3]=$5 }".\
           " function show(i,d,w) { return (name[i],d,w) in v ? v[name[i],d,w] : \"-\" }".\
           " END { for (i=1; i<=n; i++) print name[i] \",\" show(i,\"durable\",\"one\") \",\" ".\
           "show(i,\"durable\",\"two\") \",\" show(i,\"relaxed\",\"one\") \",\" ".\
           "show(i,\"relaxed\",\"two\") \",\" show(i,\"relaxed\",\"replay\") }' peers.csv"
    plot wide using 2:xtic(1) title "durable, one transaction", \
         "" using 3 title "durable, two commits", "" using 4 title "relaxed, one transaction", \
         "" using 5 title "relaxed, two commits", "" using 6 title "replay"
    set key inside left top vertical
    unset logscale y
    set yrange [*:*]
    set xtics norotate
  }

  # Latency percentiles.
  if (there("latency.csv")) {
    set output "latency.".form
    set title "Latency of claim, row and completion: durable, two commits (logarithmic)"
    set style data linespoints
    set logscale y
    set ylabel "microseconds"
    set xrange [0.5:4.5]
    set xtics ("50 %%" 1, "90 %%" 2, "99 %%" 3, "99.9 %%" 4)
    set key left top
    names = "idem sqlite-hand postgres-conflict redis python-idem python-hand ".\
            "node-idempotency powertools"
    four = ' && $2=="durable" && $3=="two" { for (i = 1; i <= 4; i++) print i "," $(3+i) }'
    plot for [n in names] rows("latency.csv", '$1=="'.n.'"'.four) using 1:2 title n linewidth 2
    unset logscale y
    set xrange [*:*]
    set xtics autofreq
  }

  # Cost against the number of records.
  growth = there("growth-large.csv") ? "growth-large.csv" : "growth.csv"
  if (there(growth)) {
    set output "growth.".form
    set title "Cost against the number of records"
    set style data linespoints
    set logscale x
    set format x "10^%T"
    set xlabel "records"
    set ylabel "microseconds"
    set yrange [0:*]
    plot for [k in "v4 v7"] for [w in "cycle replay pair purge"] \
         rows(growth, '$1=="'.k.'" && $3=="'.w.'"') using 2:4 title w.", UUID".k linewidth 2
    unset logscale x
    set format x "%g"
    set yrange [*:*]
  }

  # Cost against the size of the answer.
  if (there("size.csv")) {
    set output "size.".form
    set title "Cost against the size of the answer (logarithmic)"
    set logscale xy
    set xlabel "bytes"
    set ylabel "microseconds"
    plot for [o in "cycle replay"] for [b in "scalar table hand"] \
         rows("size.csv", '$1>0 && $2~/^'.o.'/ && $3~/'.b.'$/') using 1:4 \
         title o.", ".(b eq "hand" ? "by hand" : b) linewidth 2
    unset logscale xy
  }
}
