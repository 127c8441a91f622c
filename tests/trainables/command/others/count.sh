# A sum that a shell keeps in a file: `sh count.sh STEP DIRECTORY [FILE]`.
step=$1; directory=$2; n=0; sum=0
[ -n "$3" ] && read -r n sum < "$3"
while [ "$n" -lt 6 ]; do
  n=$((n + 1)); sum=$((sum + step * n))
  echo "n=$n sum=$sum"
  echo "$n $sum" > "$directory/half"
  mv "$directory/half" "$directory/sum-$n"
  sleep 0.3
done
