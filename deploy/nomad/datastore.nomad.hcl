# The datastore over a bucket, as a service. The variable nomad/jobs/plancha-datastore has its rules and the bucket's keys.
variable "image" {
  default = "plancha-datastore:dev"
}

variable "storage" {
  default     = "s3://example-plancha"
  description = "Storage URL of the datastore: s3://BUCKET[/PREFIX], gs://... or az://..."
}

job "plancha-datastore" {
  type = "service"

  group "datastore" {
    count = 2

    # One replica is always there while the other one is replaced or its node is drained.
    update {
      max_parallel     = 1
      min_healthy_time = "10s"
      healthy_deadline = "2m"
      auto_revert      = true
    }

    migrate {
      max_parallel = 1
    }

    spread {
      attribute = "${node.unique.id}"
    }

    network {
      port "http" {
        to = 8080
      }
    }

    service {
      name     = "plancha-datastore"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/readyz"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "datastore" {
      driver = "docker"
      user   = "65532:65532"
      # More than --drain-delay and --drain-timeout; the client's max_kill_timeout must allow it.
      kill_timeout = "45s"

      config {
        image           = var.image
        entrypoint      = ["datastore"]
        args            = ["serve", "--drain-delay=5s"]
        ports           = ["http"]
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]
      }

      env {
        PLANCHA_LISTEN     = ":8080"
        PLANCHA_STORAGE    = var.storage
        PLANCHA_AUTH       = "tokens=${NOMAD_SECRETS_DIR}/rules.yaml"
        PLANCHA_LOG_FORMAT = "json"
      }

      # Digests of tokens, and what each may do: the output of `datastore token --rules`.
      template {
        destination = "secrets/rules.yaml"
        change_mode = "noop" # the datastore reads changed rules by itself
        data        = "{{ with nomadVar \"nomad/jobs/plancha-datastore\" }}{{ .rules }}{{ end }}"
      }

      template {
        destination = "secrets/storage.env"
        env         = true
        data        = <<-END
          {{ with nomadVar "nomad/jobs/plancha-datastore" }}
          AWS_REGION={{ .aws_region }}
          AWS_ACCESS_KEY_ID={{ .aws_access_key_id }}
          AWS_SECRET_ACCESS_KEY={{ .aws_secret_access_key }}
          {{ end }}
        END
      }

      resources {
        cpu    = 200
        memory = 512
      }
    }
  }
}
