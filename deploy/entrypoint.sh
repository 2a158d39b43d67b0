#!/bin/sh
# Entry point of the image. Spark on Kubernetes passes `executor` or `driver ...`; anything else is run as a command.
set -e
# Kubernetes may assign a user id without a name, but Hadoop's libraries require a user name.
if ! whoami > /dev/null 2>&1 && [ -w /etc/passwd ]; then
    echo "millstream:x:$(id -u):0::/tmp:/bin/false" >> /etc/passwd
fi
: "${SPARK_HOME:=$(python3 -c 'import pyspark, os; print(os.path.dirname(pyspark.__file__))')}"
export SPARK_HOME
case "$1" in
executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ... each contain one Java option.
    set --
    n=0
    while option=$(printenv "SPARK_JAVA_OPT_$n"); do
        set -- "$@" "$option"
        n=$((n + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
*)
    exec "$@"
    ;;
esac
