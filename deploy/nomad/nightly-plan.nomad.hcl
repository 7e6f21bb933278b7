# A plan every night.
variable "image" {
  default = "plancha-runner:dev"
}

variable "datastore" {
  default     = "http://plancha-datastore.example.com:8080"
  description = "URL of the datastore"
}

variable "source" {
  default     = "https://git.example.com/infra.git"
  description = "git URL of the code"
}

variable "revision" {
  default = "main"
}

variable "path" {
  default     = "live/vpc"
  description = "the root module in it"
}

job "plancha-vpc-plan" {
  type = "batch"

  periodic {
    crons            = ["0 4 * * *"]
    time_zone        = "Etc/UTC"
    prohibit_overlap = true
  }

  group "run" {
    # A plan changes nothing, so Nomad may repeat any failure once. The order stays the same when a task is restarted or another
    # node takes it: the next attempt of one run.
    restart {
      attempts = 1
      interval = "30m"
      delay    = "15s"
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "runner" {
      driver = "docker"
      user   = "65532:65532"
      # 30 s more than PLANCHA_GRACE; the client's max_kill_timeout must allow it.
      kill_timeout = "330s"

      config {
        image           = var.image
        entrypoint      = ["runner"]
        args            = ["plan"]
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]

        mount {
          type   = "tmpfs"
          target = "/tmp"
        }
      }

      env {
        PLANCHA_SOURCE        = var.source
        PLANCHA_REVISION      = var.revision
        PLANCHA_PATH          = var.path
        PLANCHA_DATASTORE_URL = var.datastore
        PLANCHA_TOKEN_FILE    = "${NOMAD_SECRETS_DIR}/token"
        PLANCHA_GRACE         = "5m"
        PLANCHA_LOG_FORMAT    = "json"
        # Tools, and what a run could not send, are in the allocation's directory. /tmp must not run programs.
        HOME                            = "${NOMAD_TASK_DIR}"
        BURRITO_RUNNER_RUNNERBINARYPATH = "${NOMAD_TASK_DIR}/bin"
        TMPDIR                          = "${NOMAD_ALLOC_DIR}/tmp"
      }

      # The job's name is the order. It has a slash, which the name of a run cannot have.
      template {
        destination = "local/run.env"
        env         = true
        data        = "PLANCHA_RUN={{ env \"NOMAD_JOB_ID\" | replaceAll \"/\" \"-\" }}"
      }

      template {
        destination = "secrets/token"
        change_mode = "noop" # a run reads the new token by itself, and must not be started again
        perms       = "0400"
        uid         = 65532
        gid         = 65532
        data        = "{{ with nomadVar \"nomad/jobs/plancha-vpc-plan\" }}{{ .token }}{{ end }}"
      }

      resources {
        cpu    = 500
        memory = 2048
      }
    }
  }
}
